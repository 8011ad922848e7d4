"""An application that a configuration file of Serve names."""

from ray import serve


@serve.deployment(ray_actor_options={"num_cpus": 0})
class Now:
    async def __call__(self) -> str:
        return "now"


application = Now.bind()
