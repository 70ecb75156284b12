"""The NIC process of a host: it serves programs that loaded libmrc, over hosts/verbs and the host's NIC ports."""
