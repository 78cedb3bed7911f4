"""The data sets that chat is fitted to, each by what is published of it or was measured on it."""

from simulator.workloads.chat import ChatRules
from simulator.workloads.lengths import Lengths


def wildchat() -> ChatRules:
    """WildChat (Zhao et al., ICLR 2024): 2.5 turns a conversation, messages of 296 (sd 1,609) tokens, answers
    of 441 (sd 411).

    That many conversations begin with the same long prompt generators is known and not published as a figure;
    the share, number and length of such texts are ours, within the published mean of all messages.
    """
    return ChatRules(
        name="wildchat",
        turns=2.5,
        messages=Lengths.by_mean(275, 1_609),
        answers=Lengths.by_mean(441, 411, most=4_096),
        shared_starts=0.12,
        texts=2_000,
        text=Lengths(500, 0.7, least=64, most=4_096),
        after_text=Lengths(30, 0.8, most=512),
    )


def lmsys() -> ChatRules:
    """LMSYS-Chat-1M (Zheng et al., ICLR 2024): 2.0 turns, messages of 70 (sd 143) tokens, answers of 215.

    The deviation of its answers is taken as its mean; shared texts, which its demo page offered as examples,
    are fewer and shorter than WildChat's (ours).
    """
    return ChatRules(
        name="lmsys",
        turns=2.0,
        messages=Lengths.by_mean(66, 143),
        answers=Lengths.by_mean(215, 215, most=4_096),
        shared_starts=0.10,
        texts=500,
        text=Lengths(80, 0.9, least=12, most=2_048),
        after_text=Lengths(12, 0.6, most=128),
    )


def mooncake_like() -> ChatRules:
    """Mooncake's conversation trace, where the file is not at hand: 12,031 requests of 8,349 sessions,
    prompts of median 6,909 and mean 12,035 tokens, answers of 343, a first block that all share.

    Its median pause is two minutes; here it is 20 s on average, for the reason that `ChatRules` gives.
    """
    return ChatRules(
        name="mooncake",
        turns=12_031 / 8_349,
        messages=Lengths(60, 2.3, most=32_768),
        answers=Lengths.by_mean(343, 300, most=2_000),
        shared_starts=0.05,
        texts=200,
        text=Lengths(5_600, 1.0, least=512, most=60_000),
        after_text=Lengths(300, 1.0, most=4_096),
        first=Lengths(5_600, 1.15, least=64, most=90_000),
        preamble=512,
        pause_s=20.0,
        most=126_000,
    )


def bailian_like() -> ChatRules:
    """A stand-in for the Qwen-Bailian to-C trace, of which only hit ratios of 54 to 62 % are at hand (paper
    1).

    Not a fit of its lengths: those of WildChat, with system prompts that a few applications share.
    """
    return ChatRules(
        name="bailian",
        turns=2.0,
        messages=Lengths.by_mean(275, 800),
        answers=Lengths.by_mean(400, 400, most=4_096),
        shared_starts=0.5,
        texts=300,
        text=Lengths(400, 0.8, least=32, most=4_096),
        after_text=Lengths.by_mean(275, 800),
    )


def azure_conversation_like() -> ChatRules:
    """Azure's conversation trace: prompts of mean 1,155 and median 1,020 tokens, answers of mean 211. No
    content is known, so nothing is shared."""
    return _azure("azure-conv", Lengths(1_020, 0.52, most=14_050), Lengths(129, 1.0, most=1_000))


def azure_code_like() -> ChatRules:
    """Azure's coding trace: prompts of mean 2,048 and median 1,469 tokens, answers of mean 28."""
    return _azure("azure-code", Lengths(1_469, 0.95, most=7_437), Lengths(13, 1.25, most=1_899))


def _azure(name: str, prompts: Lengths, answers: Lengths) -> ChatRules:
    return ChatRules(
        name=name,
        turns=1.0,
        messages=prompts,
        answers=answers,
        shared_starts=0.0,
        texts=1,
        text=prompts,
        after_text=prompts,
    )
