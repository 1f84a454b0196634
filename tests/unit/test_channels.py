"""Connections to engines: shared, kept while used, bounded when idle."""

from pathlib import Path

import grpc

from chassis.channels import Channels


def made(channel: grpc.aio.Channel) -> grpc.aio.Channel:
    return channel


async def test_one_connection_an_address(tmp_path: Path) -> None:
    channels = Channels(2, made)
    async with channels.to(f"unix:{tmp_path}/a") as first, channels.to(f"unix:{tmp_path}/a") as two:
        assert first is two
    async with channels.to(f"unix:{tmp_path}/a") as again:
        assert again is first
    await channels.close()


async def test_the_longest_idle_goes_and_the_busy_stay(tmp_path: Path) -> None:
    a, b, c = (f"unix:{tmp_path}/{name}" for name in "abc")
    channels = Channels(1, made)
    async with channels.to(a) as busy:
        async with channels.to(b):
            pass
        async with channels.to(c):
            pass
        assert channels.addresses() == (a, c)
        assert busy.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    assert channels.addresses() == (a,)
    assert busy.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
    await channels.close()
    assert busy.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_closing_under_a_user(tmp_path: Path) -> None:
    channels = Channels(1, made)
    async with channels.to(f"unix:{tmp_path}/a"):
        await channels.close()
    assert channels.addresses() == ()
