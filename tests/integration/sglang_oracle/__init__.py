"""SGLang's own sizing code, called without an accelerator, a server or an installed engine.

The engine's release wheel is read where pip put it; nothing of it is kept in this repository. Whole modules
load unedited wherever they need no more than numpy and the names of torch's types; of the pool solve, whose
module imports the whole engine, the methods themselves are compiled from the file's text.
"""
