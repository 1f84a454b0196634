"""The simulated device: free is what the card says, and foreign tenants follow their script."""

from pathlib import Path

import pytest

from chassis.simulated_card import SimulatedCard
from services.broker.device_simulated import SimulatedDevice, Visit


def device(tmp_path: Path, *visits: Visit) -> tuple[SimulatedDevice, SimulatedCard]:
    card = SimulatedCard(tmp_path / "sim0.card")
    return SimulatedDevice(card, 1000, visits, began_ms=5000), card


async def free(device: SimulatedDevice, at_ms: int, promised_mib: int = 0) -> int | None:
    return (await device.read(5000 + at_ms, promised_mib)).free_mib


async def test_free_is_what_the_card_says(tmp_path: Path) -> None:
    sim, card = device(tmp_path)
    first = await sim.read(5000, 0)
    assert (first.total_mib, first.free_mib, first.reachable) == (1000, 1000, True)
    card.allocate("llm/a", 300)
    assert await free(sim, 0) == 700
    assert {(use.name, use.used_mib) for use in await sim.processes()} == {("llm/a", 300)}


async def test_a_tenant_comes_and_goes(tmp_path: Path) -> None:
    sim, _ = device(tmp_path, Visit("game", 400, 1000, 2000))
    assert [await free(sim, at) for at in (999, 1000, 1999, 2000)] == [1000, 600, 600, 1000]


async def test_a_tenant_without_an_end_stays(tmp_path: Path) -> None:
    sim, card = device(tmp_path, Visit("desktop", 100, 0, None))
    assert await free(sim, 10**9) == 900
    assert [use.name for use in card.used_by()] == ["foreign/desktop"]


async def test_visits_of_one_name_add_up(tmp_path: Path) -> None:
    sim, card = device(tmp_path, Visit("game", 400, 0, None), Visit("game", 200, 100, 200))
    assert [await free(sim, at) for at in (0, 100, 200)] == [600, 400, 600]
    assert len(card.used_by()) == 1


async def test_a_tenant_takes_what_there_is_and_goes_on_trying(tmp_path: Path) -> None:
    sim, card = device(tmp_path, Visit("game", 400, 0, 100))
    card.allocate("llm/a", 900)
    assert await free(sim, 0) == 0
    card.allocate("llm/a", 700)
    assert await free(sim, 1) == 0
    card.free("llm/a")
    assert await free(sim, 2) == 600
    assert await free(sim, 100) == 1000
    assert card.out_of_memory_count == 0


async def test_a_tenant_never_takes_what_is_promised(tmp_path: Path) -> None:
    sim, _ = device(tmp_path, Visit("game", 800, 0, None))
    assert await free(sim, 0, promised_mib=300) == 300
    assert await free(sim, 1, promised_mib=400) == 300  # nor does it give back
    assert await free(sim, 2) == 200


async def test_two_tenants_share_the_rest_in_the_order_of_the_script(tmp_path: Path) -> None:
    sim, card = device(tmp_path, Visit("first", 700, 0, None), Visit("second", 700, 0, None))
    assert await free(sim, 0) == 0
    held = {use.name: use.mib for use in card.used_by()}
    assert held == {"foreign/first": 700, "foreign/second": 300}


@pytest.mark.parametrize("harm", ["remove", "tear"])
async def test_a_card_that_is_gone_is_unreachable_and_not_full(tmp_path: Path, harm: str) -> None:
    sim, card = device(tmp_path)
    card.allocate("llm/a", 300)
    assert await free(sim, 0) == 700
    path = tmp_path / "sim0.card"
    path.unlink() if harm == "remove" else path.write_bytes(b"{")
    lost = await sim.read(6000, 0)
    assert (lost.reachable, lost.total_mib, lost.free_mib) == (False, 1000, 700)
    assert lost.retry_at_unix_ms == 7000
    assert await sim.processes() == ()
    card.create(1000)
    assert not (await sim.read(6999, 0)).reachable
    assert (await sim.read(7000, 0)).reachable


async def test_tenants_come_back_to_a_card_that_was_made_anew(tmp_path: Path) -> None:
    sim, card = device(tmp_path, Visit("desktop", 100, 0, None))
    assert await free(sim, 0) == 900
    (tmp_path / "sim0.card").unlink()
    card.create(1000)
    assert await free(sim, 1) == 900
