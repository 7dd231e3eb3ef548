"""Answers questions from standard input: a line of JSON each, as palisade-bench asks them."""

import asyncio
import json
import sys


async def answer_all(answers):
    """`answers` maps what a question says to do to a coroutine that takes the question and returns the answer.

    Tasks go on while the next question is awaited. Returns when nobody asks any more.
    """
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        question = json.loads(line)
        answer = await answers[question["do"]](question)
        print(json.dumps(answer), flush=True)
