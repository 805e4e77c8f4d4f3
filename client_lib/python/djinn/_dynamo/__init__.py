"""Executes the graphs that PyTorch's Dynamo finds in modules, and for torch.compile().

`backend`, whose import takes a second, captures graphs and replays their calls. `traced` calls
registered modules through it.
"""
