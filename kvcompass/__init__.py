"""KVCompass core: pure state machines and kernels. Inputs and `now` go in; decisions come out."""
