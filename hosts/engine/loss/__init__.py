"""Loss recovery: send window, round trips and retry budget, tail-loss probe, proof of loss."""
