"""An environment of verifiers with a tool, for record.py: one question, which takes two calls."""

import verifiers.v1 as vf

from verifiers_weather.tool import WeatherToolset

QUESTION = "How warm is it in Oslo and in Bergen?"


class WeatherTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @classmethod
    def toolsets(cls, config):
        return [WeatherToolset(vf.ToolsetConfig())]

    @vf.reward(weight=1.0)
    async def warm(self, trace: vf.Trace) -> float:
        return 1.0


class WeatherConfig(vf.TasksetConfig):
    task: vf.TaskConfig = vf.TaskConfig()


class WeatherTaskset(vf.Taskset[WeatherTask, WeatherConfig]):
    def load(self):
        return [WeatherTask(vf.TaskData(idx=0, prompt=QUESTION), self.config.task)]


__all__ = ["WeatherTaskset"]
