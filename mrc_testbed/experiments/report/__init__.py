"""Reports: result folders into pictures and one self-contained page each. `mrc report DIR`."""
