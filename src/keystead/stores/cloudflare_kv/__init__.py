"""The store on Cloudflare Workers KV: strings only, eventually consistent, nothing atomic."""

from __future__ import annotations

from keystead.stores.cloudflare_kv.cloudflare_store import CloudflareKvStore

__all__ = ["CloudflareKvStore"]
