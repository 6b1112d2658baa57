"""Three small OpenAPI documents: a shop with nested paths, calls in RPC style (Swagger 2.0), and a library."""

from __future__ import annotations

import json
from typing import Any

SHOP: dict[str, Any] = json.loads(
    """
{"openapi": "3.0.3", "info": {"title": "Shop", "version": "1"}, "servers": [{"url": "https://shop.example/v1"}],
 "components": {
  "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Shop-Key"}},
  "schemas": {
   "Order": {"type": "object", "properties": {"id": {"type": "string"}, "state": {"type": "string"},
     "gift_note": {"type": "string", "nullable": true}, "parent": {"$ref": "#/components/schemas/Order"}}},
   "NewOrder": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"},
     "gift_note": {"type": "string"}}},
   "Line": {"type": "object", "properties": {"number": {"type": "integer"}, "sku": {"type": "string"}}}}},
 "paths": {
  "/customers": {"get": {"operationId": "listCustomers", "summary": "List customers.", "parameters": [
     {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
     {"name": "tags", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
     {"name": "ids", "in": "query", "explode": false, "schema": {"type": "array", "items": {"type": "string"}}},
     {"name": "X-Shop-Key", "in": "header", "schema": {"type": "string"}, "required": true}],
   "responses": {"200": {"content": {"application/json": {
     "example": {"entries": [{"id": "c 1/x", "name": "Ann"}], "total": 1},
     "schema": {"type": "object", "properties": {"total": {"type": "integer"}, "entries": {"type": "array", "items":
      {"type": "object", "properties": {"id": {"type": "string"}, "name": {"type": "string"}}}}}}}}}}}},
  "/customers/{customer_id}/orders": {
   "parameters": [{"name": "customer_id", "in": "path", "required": true, "schema": {"type": "string"}}],
   "get": {"operationId": "listOrders", "summary": "List the orders of a customer.", "responses": {"200": {"content":
     {"application/json": {"example": {"data": [{"id": "o1", "state": "open"}]}, "schema": {"type": "object",
      "properties": {"data": {"type": "array", "items": {"$ref": "#/components/schemas/Order"}}}}}}}}},
   "post": {"operationId": "createOrder", "summary": "Create an order.", "requestBody": {"content": {
     "application/json": {"schema": {"$ref": "#/components/schemas/NewOrder"}}}},
     "responses": {"201": {"content": {"application/json": {"example": {"id": "o2", "state": "open"},
       "schema": {"$ref": "#/components/schemas/Order"}}},
      "links": {"pay": {"operationId": "payOrder", "parameters": {"path.reference": "$response.body#/id"}}}}}}},
  "/customers/{customer_id}/orders/{order_id}": {
   "parameters": [{"name": "customer_id", "in": "path", "required": true, "schema": {"type": "string"}},
    {"name": "order_id", "in": "path", "required": true, "schema": {"type": "string"}}],
   "delete": {"operationId": "deleteOrder", "summary": "Delete an order.", "responses": {"204": {"description": ""}}},
   "get": {"operationId": "getOrder", "deprecated": true, "responses": {"200": {"description": ""}}}},
  "/customers/{customer_id}/orders/{order_id}/lines/{line_number}": {
   "parameters": [{"name": "customer_id", "in": "path", "required": true, "schema": {"type": "string"}},
    {"name": "order_id", "in": "path", "required": true, "schema": {"type": "string"}},
    {"name": "line_number", "in": "path", "required": true, "schema": {"type": "integer"}}],
   "patch": {"operationId": "updateLine", "summary": "Change a line.", "requestBody": {"content": {"application/json":
     {"schema": {"type": "object", "properties": {"gift_note": {"type": "string"}}}}}},
    "responses": {"200": {"content": {"application/json": {"example": {"number": 1}, "schema":
      {"$ref": "#/components/schemas/Line"}}}}}}},
  "/customers/{customer_id}/orders/{order_id}/lines": {
   "parameters": [{"name": "customer_id", "in": "path", "required": true, "schema": {"type": "string"}},
    {"name": "order_id", "in": "path", "required": true, "schema": {"type": "string"}}],
   "get": {"operationId": "listLines", "summary": "List the lines.", "responses": {"200": {"content": {
     "application/json": {"example": [{"number": 1, "sku": "s"}], "schema": {"type": "array", "items":
      {"$ref": "#/components/schemas/Line"}}}}}}}},
  "/payments/{reference}": {"put": {"operationId": "payOrder", "summary": "Pay.", "parameters": [
    {"name": "reference", "in": "path", "required": true, "schema": {"type": "string"}},
    {"name": "config", "in": "query", "schema": {"type": "string"}}],
    "responses": {"200": {"content": {"application/json": {"example": {"paid": true}}}}}}}}}
"""
)

CHAT: dict[str, Any] = json.loads(
    """
{"swagger": "2.0", "info": {"title": "Chat", "version": "1"}, "host": "chat.example", "basePath": "/api",
 "schemes": ["https"], "paths": {
  "/rooms.list": {"get": {"operationId": "rooms_list", "summary": "List rooms.", "parameters": [
    {"name": "token", "in": "query", "type": "string", "required": true,
     "description": "Authentication token. Requires scope rooms:read."}],
    "responses": {"200": {"schema": {"type": "object", "properties": {"ok": {"type": "boolean"}, "rooms":
      {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}}}}}}}},
  "/rooms.archive": {"post": {"operationId": "rooms_archive", "summary": "Archive a room.", "parameters": [
    {"name": "token", "in": "header", "type": "string", "required": true},
    {"name": "room_id", "in": "formData", "type": "string", "required": true}],
    "responses": {"200": {"schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}}}},
  "/devices.push": {"post": {"operationId": "devices_push", "summary": "Send to a device.", "parameters": [
    {"name": "token", "in": "formData", "type": "string", "required": true, "description": "Token of the device."}],
    "responses": {"200": {"schema": {"type": "object"}}}}}}}
"""
)

LIBRARY: dict[str, Any] = json.loads(
    """
{"openapi": "3.1.0", "info": {"title": "Library", "version": "1"}, "paths": {
  "/legal-holds": {"get": {"summary": "All holds.", "responses": {"200": {"content": {"application/json": {"schema":
    {"type": "object", "properties": {"legal_holds": {"type": "array", "items": {"type": "object", "properties":
      {"id": {"type": "string", "description": "The id of the hold."}}}}}}}}}}}},
  "/legal-holds/{legal_hold_id}/assignments": {"get": {"operationId": "LONG", "summary": "Books on hold.",
    "parameters": [{"name": "legal_hold_id", "in": "path", "required": true, "schema": {"type": "string"}}],
    "responses": {"200": {"content": {"application/json": {"schema": {"type": "array", "items":
     {"type": "object", "properties": {"id": {"type": "string"}}}}}}}}}},
  "/assignments/{id}": {"delete": {"summary": "End one.", "parameters": [
    {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
    {"name": "include[]", "in": "query", "schema": {"type": "string"}}], "responses": {"204": {}}}}}}
""".replace("LONG", "list_the_assignments_of_a_legal_hold_with_all_of_their_books_and_readers_at_once")
)
