"""Fates of probes, told to a Health one by one."""


def play_fates(health, *fates, start=0):
    """Tell a Health a row of fates (`.` back, `x` lost), a probe every 0.1 s; the states it went through."""
    states = []
    for number, fate in enumerate("".join(fates), start):
        if fate == ".":
            health.record_return(number, number / 10, 0.002)
        else:
            health.record_loss(number, number / 10)
        if not states or states[-1] is not health.state:
            states.append(health.state)
    return states
