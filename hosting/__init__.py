"""Engine processes: start, gate, watch, stop. What every model service shares.

Parent side (`premises`, `host`, `landlord`, `tenancy`, `instance`, `leases`, `servicer`, …) runs in
the model service; engine side (`engine_side`, `engine_servicer`, `permits`) runs in the engine
process. The Engine protocol itself is each service's own.
"""
