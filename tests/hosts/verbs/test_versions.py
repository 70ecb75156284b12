"""Versions of the API, as programs compare them with the one they were compiled for."""

from mrc_testbed.hosts.verbs import api_version, ctl_query_version, query_version


def test_query_version__is_1_0_1_in_the_layout_of_the_header():
    versions = query_version()
    assert versions.current == api_version(1, 0, 1) == 1 << 24 | 0 << 16 | 1
    assert versions.last_supported == api_version(1, 0, 0) <= versions.current
    assert versions.vendor == versions.last_supported_vendor == api_version(1, 0, 0)
    assert ctl_query_version().current == api_version(1, 0, 1)
