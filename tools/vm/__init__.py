"""The Vagrantfile tried for real: a Debian box of our own, and the life of a VM in it (`make vm`)."""
