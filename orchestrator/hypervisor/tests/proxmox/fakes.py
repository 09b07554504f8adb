"""Fake Proxmox VE clusters for the tests: fakepve, driven by lines of JSON on standard input.

{"new": {}} starts one on a free port of 127.0.0.1 with TLS; {"of": N, "run": "python"} runs statements with `pve` in scope
({"of": N, "get": "expression"} answers a value). Every line gets one line back: {"ok": value} or {"error": text}.
Ends with standard input.

Where fakepve leaves out what a test needs, `Cluster` adds it as PVE has it: tasks that take time, the lines of a creation's log,
qmpstatus in a node's VM list, networks, pools and histories that can be set.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
import tempfile
import traceback

from aiohttp import web
from fakepve import FakePve
from fakepve import shapes
from fakepve.certs import make_cert
from fakepve.model import PveError, TaskError
from fakepve.qemu import drives_of
from fakepve.server import USER, error, ok


# A connection that is dropped on purpose is no news.
logging.getLogger('aiohttp.server').setLevel(logging.CRITICAL)
logging.getLogger('fakepve').setLevel(logging.CRITICAL)


class Cluster(FakePve):
    def __init__(self):
        super().__init__(host='127.0.0.1', port=0)
        # Seconds that every task takes at least, and types of tasks that take other times.
        self.task_secs = 0.0
        self.task_secs_of = {}
        # Type of task -> exit status that it ends with instead of doing anything.
        self.task_fails = {}
        # Type of task -> exit status that it ends with after it did its work (WARNINGS: 1).
        self.task_ends = {}
        # Called before each request is answered: (request) -> None or raises PveError.
        self.before = None
        # Called before a VM is created: (values).
        self.before_create = None
        # None: as fakepve has it.
        self.bridges = None
        # Template of a GET -> what it answers.
        self.answers = {}
        # Nodes that hold a copy of a file on a storage that is not shared: fakepve has one such storage for all nodes.
        self.copies = {}
        # Directory that uploaded files are written to; fakepve keeps their names and sizes only.
        self.uploads_dir = None
        # Messages of errors go into the status line only, as with PVE 8.
        self.terse = False
        # Share of changes whose answer is lost after they had their effect.
        self.lose_answers = 0.0
        # Share of changes that are held back before they are made, for how long, and how many are held now.
        self.hold_rate = 0.0
        self.hold_secs = 0.0
        self.held = 0
        # Most tasks that ran at a time: in all, and on one node.
        self.most_tasks = [0, 0]
        # Node -> bytes that the network cards of its VMs have sent.
        self.sent_of = {}
        # Methods with templates of all calls so far.
        self.used = set()
        # Requests that carried a token or a ticket.
        self.credentials = 0

    def _authenticate(self, request):
        self.credentials += 'Authorization' in request.headers or 'Cookie' in request.headers
        return super()._authenticate(request)

    async def task(self, node, ttype, tid, user, body, vm=None, lock=True, log=()):
        secs = self.task_secs_of.get(ttype, self.task_secs)

        async def slow():
            record = next(t for t in reversed(self.tasklog) if (t['type'], t['id']) == (ttype, str(tid)))
            running = [t['node'] for t in self.tasklog if t['status'] == 'running']
            self.most_tasks = [max(self.most_tasks[0], len(running)), max(self.most_tasks[1], running.count(node))]
            if secs:
                await asyncio.sleep(secs)
            if ttype in self.task_fails:
                if ttype == 'qmcreate':
                    self.vms.remove(vm)  # PVE cleans up after a creation that failed
                raise TaskError(self.task_fails[ttype])
            note = await body()
            if ttype == 'qmcreate':
                record['log'] += self.disk_lines(int(tid))
            if ttype in self.task_ends:
                record['log'].append('WARN: something is odd')
            return note
        scale = self.time_scale
        if secs and not scale:
            self.time_scale = 1e-9  # tasks run on after the request is answered
        try:
            return await super().task(node, ttype, tid, user, slow, vm=vm, lock=lock, log=log)
        finally:
            self.time_scale = scale

    def _vm(self, request, priv=None):
        # PVE checks privileges before it looks whether there is such a VM.
        if priv and self.acl is not None:
            self.require(request[USER], '/vms/' + request.match_info['vmid'], priv)
        return super()._vm(request, priv)

    def _vm_usage(self, vm):
        return dict(super()._vm_usage(vm), netout=self.sent_of.get(vm.node, 0))

    def _qm_free(self, volid):
        # fakepve frees a CD-ROM's image with its VM; PVE frees only what the VM owns.
        if ':iso/' not in volid:
            super()._qm_free(volid)

    def disk_lines(self, vmid):
        """What PVE logs of the disks that it creates."""
        lines = []
        for key, volume, props in drives_of(self.vm(vmid).config, skip_cdrom=True):
            options = ','.join([volume] + ['{0}={1}'.format(k, props[k]) for k in sorted(props)])
            lines.append("{0}: successfully created disk '{1}'".format(key, options))
        return lines

    def _task_view(self, task, listing=False):
        end = self.task_ends.get(task['type'])
        if end and task.get('exitstatus') == 'OK':
            task = dict(task, exitstatus=end)
        return super()._task_view(task, listing)

    def is_nodes_own(self, name):
        return not self.storages.get(name, {}).get('shared')

    async def _upload(self, request):
        answer = await super()._upload(request)
        name, node = request.match_info['storage'], request.match_info['node']
        if self.uploads_dir:
            with open(os.path.join(self.uploads_dir, self.uploaded['filename']), 'wb') as file:
                file.write(self.uploaded['data'])
        if self.is_nodes_own(name):
            self.copies.setdefault('iso/' + self.uploaded['filename'], set()).add(node)
        return answer

    async def _content_list(self, v, user):
        items = await super()._content_list(v, user)
        if not self.is_nodes_own(v['storage']):
            return items
        return [i for i in items if v['node'] in self.copies.get(i['volid'].split(':', 1)[1], {v['node']})]

    async def _content_delete(self, v, user):
        copies = self.copies.get(v['volume'].split(':', 1)[-1], set())
        if not self.is_nodes_own(v['storage']) or not copies - {v['node']}:
            return await super()._content_delete(v, user)

        async def body():
            copies.discard(v['node'])
            return "Removed volume '{0}'".format(v['volume'])
        return await self.task(v['node'], 'imgdel', v['storage'], user, body, lock=False)

    async def _answer(self, request, handler, generic, path_node):
        if request.method != 'GET' and self.hold_rate and self._random.random() < self.hold_rate:
            self.held += 1
            try:
                await asyncio.sleep(self.hold_secs)
            finally:
                self.held -= 1
        try:
            answer = await self._answer_as_set(request, handler, generic, path_node)
        except PveError as e:
            answer = error(e.status, e.message, e.errors)
        if self.terse and answer.status >= 400:
            answer = web.json_response({'data': None}, status=answer.status, reason=answer.reason)
        if request.method != 'GET' and self._random.random() < self.lose_answers:
            request.transport.close()
            raise ConnectionResetError('the answer is lost')
        return answer

    async def _answer_as_set(self, request, handler, generic, path_node):
        if self.before:
            self.before(request)
        match = generic or self.resolve(request, '/api2/json')
        template = match.template if match else None
        self.used.add((request.method, template or request.path))
        if request.method == 'GET' and template == '/nodes/{node}/network' and self.bridges is not None:
            return ok(self.bridges.get(path_node, []))
        if template == '/cluster/nextid' and self.vm(int(request.query.get('vmid', 0))):
            raise PveError(400, 'Parameter verification failed.', {
                'vmid': 'VM {0} already exists'.format(request.query['vmid'])})
        if request.method == 'GET' and template in self.answers:
            return ok(self.answers[template])
        return await super()._answer(request, handler, generic, path_node)

    async def _qm_create(self, v, user):
        if self.before_create:
            self.before_create(v)
        return await super()._qm_create(v, user)

    async def _qemu_list(self, request):
        answer = await super()._qemu_list(request)
        if request.query.get('full') != '1':
            return answer
        data = json.loads(answer.text)['data']
        for item in data:
            item['qmpstatus'] = self.vm(item['vmid']).qmpstatus
        return ok(data)

    def nodes_named(self, *names):
        self.nodes = dict((name, {'online': True}) for name in names)

    def inventory(self):
        """Everything that a test must leave as it found it."""
        guests = sorted((vm.vmid, vm.node, vm.status, sorted((k, str(x)) for k, x in vm.config.items()))
                        for vm in list(self.vms) + list(getattr(self, 'cts', [])))
        stores = {}
        for name, store in sorted(self.storages.items()):
            volumes = dict((k, [x.get('size'), x.get('vmid'), x.get('content')])
                           for k, x in store.get('volumes', {}).items())
            stores[name] = {'volumes': volumes, 'files': sorted(store['files'])}
            if store.get('shared'):
                stores[name]['avail'] = store.get('avail')
        return {'guests': guests, 'storages': stores,
                'pools': dict((name, sorted(ids)) for name, ids in self.pools.items())}

    async def change_certificate(self):
        """Another certificate on the same port; answers its SHA-256."""
        import hashlib
        with tempfile.TemporaryDirectory(prefix='fakepve-') as directory:
            cert, key, der = make_cert(directory, name='other', hosts=('127.0.0.1',))
            await self.stop()
            await self.start(cert, key)
        return hashlib.sha256(der).hexdigest()

    def running_tasks(self):
        return [t['upid'] for t in self.tasklog if t['status'] == 'running']


async def answer(clusters, directory, request):
    if 'new' in request:
        pve = Cluster()
        pve.apitokens['fc@pve!poc'] = 'the-secret-of-the-token'
        cert, key, der = make_cert(directory, name='pve{0}'.format(len(clusters)), hosts=('127.0.0.1',))
        await pve.start(cert, key)
        clusters.append(pve)
        import hashlib
        return {'of': len(clusters) - 1, 'url': pve.url, 'cert': cert, 'sha256': hashlib.sha256(der).hexdigest()}
    pve = clusters[request['of']]
    scope = {'pve': pve, 'PveError': PveError, 'TaskError': TaskError, 'asyncio': asyncio, 'shapes': shapes, 'json': json}
    if 'get' in request:
        value = eval(request['get'], scope)  # the tests' own text
        return await value if asyncio.iscoroutine(value) else value
    exec(request['run'], scope)
    return None


async def main():
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    clusters = []
    with tempfile.TemporaryDirectory(prefix='fakepve-') as directory, contextlib.suppress(BrokenPipeError):
        while line := await reader.readline():
            try:
                out = {'ok': await answer(clusters, directory, json.loads(line))}
                text = json.dumps(out)
            except Exception:
                text = json.dumps({'error': traceback.format_exc()})
            print(text, flush=True)


asyncio.run(main())
