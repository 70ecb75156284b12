"""The NIC process of a host serves programs that loaded libmrc, over hosts/verbs."""
