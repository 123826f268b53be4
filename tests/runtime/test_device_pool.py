"""A pool leases devices to jobs, fairly, and no job is lost or answered twice.

`python benchmarks/fleet.py` simulates more devices.
"""

from __future__ import annotations

import pytest

from fleet import NONE, Faults, simulated
from tilesmith.runtime.remote.pool import Job, Pool


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_job_goes_to_a_device_of_its_kind():
    pool: Pool[str, int] = Pool(10.0)
    pool.join("a", "arm")
    pool.submit(Job(1, "riscv"))
    assert list(pool.grants()) == [] and pool.waiting == 1
    pool.join("b", "riscv")
    (lease,) = pool.grants()
    assert (lease.device, lease.job.work) == ("b", 1)
    assert pool.done(lease) and not pool.done(lease)


def test_users_share_devices_and_latecomers_have_no_credit():
    clock = Clock()
    pool: Pool[str, int] = Pool(100.0, clock=clock)
    pool.join("a", "arm")
    for n in range(20):
        pool.submit(Job(n, "arm", "early"))
    order = []
    for n in range(20):
        if n == 10:
            for k in range(10):
                pool.submit(Job(k, "arm", "late"))
        (lease,) = pool.grants()
        order.append(lease.job.user)
        clock.now += 1
        assert pool.done(lease)
    assert order[:10] == ["early"] * 10
    assert order[10:].count("late") in (5, 6)


def test_a_silent_device_loses_its_lease_and_its_late_answer_does_not_count():
    clock = Clock()
    pool: Pool[str, int] = Pool(5.0, clock=clock)
    pool.join("a", "arm")
    pool.submit(Job(1, "arm"))
    (first,) = pool.grants()
    clock.now = 4.0
    assert pool.expire() == []
    clock.now = 5.0
    assert pool.expire() == ["a"] and pool.devices == 0
    pool.join("a", "arm")
    (second,) = pool.grants()
    assert second.job is first.job and not pool.done(first) and pool.done(second)


def test_a_job_that_devices_lose_is_given_up():
    pool: Pool[str, int] = Pool(5.0, attempts=2)
    pool.submit(Job(1, "arm"))
    for name in "ab":
        pool.join(name, "arm")
        assert len(list(pool.grants())) == 1
        pool.leave(name)
    assert [j.work for j in pool.lost] == [1] and pool.waiting == pool.running == 0


@pytest.mark.parametrize("seed", range(3))
def test_simulated_devices_with_faults_work_on(seed: int):
    found = simulated(40, 20.0, Faults(up=30.0), seed=seed)
    ended, _, twice = found.jobs
    assert ended > 1000 and twice == 0
    assert found.efficiency > 0.75 and found.fairness > 0.98 and found.wasted < 0.1
    assert simulated(40, 5.0, NONE, seed=seed).wasted == 0
