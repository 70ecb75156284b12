"""Try the Vagrantfile for real: make a Debian box, and live a VM's life in it (`make vm`)."""
