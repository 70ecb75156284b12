"""MRC in scapy: a layer for each header, and a codec between layers and packet records.

    layers.py   BTH, METH, TSETH, RETH, SETH, CCState, NETH, PETH, ERTH, EETH, ICRC, USidCarrier; icrc_of()
    codec.py    ScapyCodec: encode, decode, to_scapy, to_record
    rocev2.py   the records of RoCEv2 RC

Names are imported from their module: the layers alone load without the engine's codec.
"""
