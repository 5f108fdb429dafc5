"""Which addresses count as one client."""

from keystead.parts.limit import client_of, network_of


def test_a_client_is_an_ipv4_address_or_an_ipv6_64_network_and_its_id_reveals_neither() -> None:
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff") != client_of("2001:db8:0:1::1")
    assert client_of("::ffff:192.0.2.1") == client_of("192.0.2.1") != client_of("192.0.2.2")
    assert client_of("fe80::1%eth0") == client_of("fe80::1")
    for address in ("192.0.2.1", "not an address", ""):
        assert len(client_of(address)) == 16
        assert int(client_of(address), 16) >= 0


def test_a_network_is_written_in_one_way_only() -> None:
    for written in (
        "2001:db8:0:7::1",
        "2001:DB8:0:7:ffff:ffff:ffff:ffff",
        "2001:0db8:0000:0007::",
        "2001:db8:0:7::9%x",
    ):
        assert network_of(written) == "2001:db8:0:7::"
    assert network_of("2001:db8:0:8::1") == "2001:db8:0:8::"
    for mapped in ("::ffff:192.0.2.1", "::FFFF:c000:201", "0:0:0:0:0:ffff:192.0.2.1"):
        assert network_of(mapped) == "192.0.2.1"
    for plain in ("192.0.2.1", "somebody", "", "999.1.1.1", ":::"):
        assert network_of(plain) == plain
