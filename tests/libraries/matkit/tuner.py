"""An autotuner with a policy of its own: it stops at the first configuration that is good enough."""

import triton
from triton.runtime.autotuner import Autotuner


class FirstGood(Autotuner):
    """Measures configurations until one takes no longer than the one before."""

    def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **options):
        super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **options)
        self.keys = key
        self.measured = 0
        kernel = self.fn
        while not isinstance(kernel, triton.runtime.JITFunction):
            kernel = kernel.fn
        self.identity = kernel.cache_key

    def run(self, *args, **kwargs):
        """Launches, after measuring."""
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        key = tuple(self.nargs[name] for name in self.keys)
        if key not in self.cache:
            timings = {}
            for config in self.prune_configs(kwargs):
                timings[config] = self._bench(*args, config=config, **kwargs)
                self.measured += 1
                if len(timings) > 1:
                    break
            self.cache[key] = min(timings, key=timings.get)
            self.configs_timings = timings
        config = self.best_config = self.cache[key]
        result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        self.nargs = None
        return result


def first_good(configs, key, **options):
    """The decorator."""
    return lambda fn: FirstGood(fn, fn.arg_names, configs, key, None, None, **options)
