"""The tables of the code host."""

from __future__ import annotations

SCHEMA = """
CREATE TABLE user (
  name TEXT PRIMARY KEY, password TEXT NOT NULL, full_name TEXT NOT NULL, email TEXT NOT NULL, bio TEXT NOT NULL,
  location TEXT NOT NULL, website TEXT NOT NULL, status TEXT NOT NULL, joined TEXT NOT NULL);
CREATE TABLE team (
  path TEXT PRIMARY KEY, title TEXT NOT NULL, description TEXT NOT NULL, visibility TEXT NOT NULL,
  created TEXT NOT NULL);
CREATE TABLE team_member (
  team TEXT NOT NULL, user TEXT NOT NULL, role TEXT NOT NULL, since TEXT NOT NULL, PRIMARY KEY (team, user));
CREATE TABLE project (
  id INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL,
  description TEXT NOT NULL, visibility TEXT NOT NULL, language TEXT NOT NULL, branch TEXT NOT NULL,
  stars INTEGER NOT NULL, forks INTEGER NOT NULL, forked_from INTEGER, created TEXT NOT NULL, updated TEXT NOT NULL,
  UNIQUE (namespace, path));
CREATE TABLE member (
  project INTEGER NOT NULL, user TEXT NOT NULL, role TEXT NOT NULL, since TEXT NOT NULL, PRIMARY KEY (project, user));
CREATE INDEX member_user ON member (user);
CREATE TABLE star (user TEXT NOT NULL, project INTEGER NOT NULL, PRIMARY KEY (user, project));
CREATE TABLE follow (user TEXT NOT NULL, followed TEXT NOT NULL, PRIMARY KEY (user, followed));
CREATE TABLE label (
  id INTEGER PRIMARY KEY AUTOINCREMENT, project INTEGER NOT NULL, name TEXT NOT NULL, colour TEXT NOT NULL,
  description TEXT NOT NULL, UNIQUE (project, name));
CREATE TABLE milestone (
  id INTEGER PRIMARY KEY AUTOINCREMENT, project INTEGER NOT NULL, title TEXT NOT NULL, due TEXT NOT NULL,
  state TEXT NOT NULL, UNIQUE (project, title));
CREATE TABLE issue (
  id INTEGER PRIMARY KEY AUTOINCREMENT, project INTEGER NOT NULL, iid INTEGER NOT NULL, title TEXT NOT NULL,
  description TEXT NOT NULL, author TEXT NOT NULL, assignee TEXT NOT NULL, milestone INTEGER, state TEXT NOT NULL,
  due TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, UNIQUE (project, iid));
CREATE INDEX issue_assignee ON issue (assignee);
CREATE INDEX issue_author ON issue (author);
CREATE TABLE issue_label (issue INTEGER NOT NULL, label INTEGER NOT NULL, PRIMARY KEY (issue, label));
CREATE TABLE merge_request (
  id INTEGER PRIMARY KEY AUTOINCREMENT, project INTEGER NOT NULL, iid INTEGER NOT NULL, title TEXT NOT NULL,
  description TEXT NOT NULL, author TEXT NOT NULL, assignee TEXT NOT NULL, reviewer TEXT NOT NULL, source TEXT NOT NULL,
  target TEXT NOT NULL, state TEXT NOT NULL, created TEXT NOT NULL, updated TEXT NOT NULL, UNIQUE (project, iid));
CREATE TABLE note (
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, target INTEGER NOT NULL, author TEXT NOT NULL,
  body TEXT NOT NULL, created TEXT NOT NULL);
CREATE INDEX note_target ON note (kind, target);
CREATE TABLE branch (project INTEGER NOT NULL, name TEXT NOT NULL, created TEXT NOT NULL, PRIMARY KEY (project, name));
CREATE TABLE revision (
  id INTEGER PRIMARY KEY AUTOINCREMENT, project INTEGER NOT NULL, branch TEXT NOT NULL, sha TEXT NOT NULL,
  author TEXT NOT NULL, message TEXT NOT NULL, created TEXT NOT NULL);
CREATE INDEX revision_project ON revision (project, created);
CREATE INDEX revision_author ON revision (author);
CREATE TABLE file (
  project INTEGER NOT NULL, path TEXT NOT NULL, text TEXT NOT NULL, updated TEXT NOT NULL, PRIMARY KEY (project, path));
CREATE TABLE todo (
  id INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, author TEXT NOT NULL, action TEXT NOT NULL,
  kind TEXT NOT NULL,
  target INTEGER NOT NULL, created TEXT NOT NULL, state TEXT NOT NULL);
CREATE INDEX todo_user ON todo (user, state);
"""
