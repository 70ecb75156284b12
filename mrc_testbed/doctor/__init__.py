"""What the machines have for the testbed, what they lack, and the cure; and a fabric without root."""
