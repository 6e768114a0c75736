"""The casebook: failures that streaming gateways have really had, as vectors; one runner module per form.

``values`` reads vectors · ``test_casebook`` makes one test of each (and of each framing) · ``form_<form>`` plays the
vectors of one form and says which features of a vector it does not support yet · ``own/*.json`` are vectors of ours.
"""
