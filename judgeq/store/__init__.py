"""Stores: the databases that keep a run's facts."""

from judgeq.store.protocol import Items as Items
from judgeq.store.protocol import Spent as Spent
from judgeq.store.sql_store import Store as Store
