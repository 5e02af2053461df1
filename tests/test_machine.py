from jaxrl_long import machine


def pretend(monkeypatch, *, device, plugin, platforms=None, visible=None):
    monkeypatch.setattr(machine, "_gpu_device", lambda: device)
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: plugin or None)
    for name, value in {"JAX_PLATFORMS": platforms, "CUDA_VISIBLE_DEVICES": visible}.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)


def test_a_gpu_counts_when_its_device_and_the_plugin_for_it_are_there(monkeypatch):
    pretend(monkeypatch, device=True, plugin=True)
    assert machine.find_machine() == "gpu"


def test_a_gpu_that_jax_has_no_plugin_for_is_not_used(monkeypatch):
    pretend(monkeypatch, device=True, plugin=False)
    assert machine.find_machine() == "cpu"


def test_a_plugin_without_a_device_is_not_a_gpu(monkeypatch):
    pretend(monkeypatch, device=False, plugin=True)
    assert machine.find_machine() == "cpu"


def test_a_hidden_gpu_does_not_count(monkeypatch):
    pretend(monkeypatch, device=True, plugin=True, visible="-1")
    assert machine.find_machine() == "cpu"


def test_jax_platforms_decides_when_it_is_set(monkeypatch):
    pretend(monkeypatch, device=True, plugin=True, platforms="cpu")
    assert machine.find_machine() == "cpu"
    pretend(monkeypatch, device=False, plugin=False, platforms="cuda,cpu")
    assert machine.find_machine() == "gpu"


def test_this_process_may_use_at_least_one_core():
    assert machine.usable_cores() >= 1
