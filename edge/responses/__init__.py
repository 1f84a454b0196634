"""OpenAI's Responses dialect: `/v1/responses` and what is kept of the answers given there.

    body ─ request ─ items      what a client asks → one llm.v1 GenerateRequest
    objects ─ writer            llm.v1 messages → one Response object, told whole or in events
    store ─ in_flight           answers that are over, and those that are not
    shelf ─ shared              where they are found, over several workers too
    endpoint ─ routes           HTTP

Chat completions, which share nothing with it but the engine, stay out.
"""
