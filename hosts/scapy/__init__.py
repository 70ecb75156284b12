"""MRC in scapy: a layer for each header, and a codec between layers and packet records."""
