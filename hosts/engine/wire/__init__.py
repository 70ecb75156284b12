"""The wire: PSN arithmetic, packet records, header layouts, codec, iCRC, variants."""
