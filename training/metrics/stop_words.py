"""Words of captions that say nothing about the picture by themselves, lower-cased, as the tokenisers cut them."""

_ARTICLES_AND_PRONOUNS = """
    a an the this that these those
    i you he she it we they me him her us them my your his its our their mine yours hers ours theirs
    myself yourself himself herself itself ourselves themselves
    who whom whose which what one ones oneself each other another others something someone somebody anything anyone
    everything everyone nothing nobody there here
"""
_CONNECTIVES = """
    and or but nor so yet as if than then because while when where whether although though until since once
"""
_PREPOSITIONS = """
    about above across after against along alongside amid among amongst around at atop away back before behind below
    beneath beside besides between beyond by down during for forward from in inside into near next of off on onto out
    outside over past through throughout to together toward towards under underneath up upon via with within without
"""
_AUXILIARIES = """
    am is are was were be been being have has had having do does did doing done can could may might must shall should
    will would ca wo
"""
_PARTICLES = """
    not n't no 's ' 'm 're 've 'd 'll s t
    very too also just only even still quite rather some any all both either neither every many much more most few
    several such same own
    -lrb- -rrb- -lsb- -rsb- -lcb- -rcb-
"""

STOP_WORDS = frozenset(
    " ".join((_ARTICLES_AND_PRONOUNS, _CONNECTIVES, _PREPOSITIONS, _AUXILIARIES, _PARTICLES)).split()
)
