"""What users may replace: serializers, partitioners, interceptors.

Owns nothing but the objects that the configuration names. They run on the thread that calls ``send``; interceptors
are told of acknowledgements on the sender thread. An error in user code must never end the sender.
"""
