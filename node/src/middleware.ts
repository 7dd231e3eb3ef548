import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type BadArgument, Fenced } from './errors.js';
import { type Fence, type Grant, parseFencingToken } from './fencing.js';

const SAFE = ['GET', 'HEAD', 'OPTIONS'];

/** A pass of a request: its grant, and what the fence hands to the handler. */
export interface Pass<Passed = unknown> {
  readonly grant: Grant;
  readonly passed: Passed;
}

const PROBLEM = { 'content-type': 'application/problem+json' };

/** Why a request is refused, as a problem of RFC 9457. */
interface Problem {
  readonly status: number;
  readonly title: string;
  readonly seen?: number;
}

/** Returns the grant of a request, none if it needs none, or why it is refused. */
function grantOrProblem(method: string, header: string | null | undefined): Grant | Problem | undefined {
  const isSafe = SAFE.includes(method);
  if (header === undefined || header === null) {
    return isSafe ? undefined : { status: 428, title: 'this resource needs the header Fencing-Token' };
  }
  try {
    const grant = parseFencingToken(header);
    if (isSafe || grant.mode !== 'shared') return grant;
    return { status: 400, title: 'the holder of a shared lock reads, and changes nothing' };
  } catch (error) {
    return { status: 400, title: (error as BadArgument).message };
  }
}

function problemOf(error: unknown): Problem {
  if (error instanceof Fenced) return { status: 412, title: error.message, seen: error.seen };
  return { status: 500, title: 'the fence or the handler failed' };
}

/**
 * Returns a middleware for `node:http` and Express, which refuses requests that change a resource without a token, and
 * all whose token is older than one that was seen.
 *
 * `resource` returns the name of the fence for a request; `null` if it needs none. Later handlers find the `Pass` as
 * `request.fencing`. The pass ends with the response. If the fence fails, the answer is 500, and the handler is not called.
 */
export function fencing<Passed, Incoming extends IncomingMessage>(
  fence: Fence<Passed>,
  resource: (request: Incoming) => string | null,
): (request: Incoming & { fencing?: Pass<Passed> }, response: ServerResponse, next: () => void) => void {
  return (request, response, next) => {
    const refuse = (problem: Problem) => {
      response.writeHead(problem.status, PROBLEM).end(JSON.stringify(problem));
    };
    const name = resource(request);
    // Node.js joins several such headers by a comma, which is refused.
    const header = request.headers['fencing-token'] as string | undefined;
    const grant = name === null ? undefined : grantOrProblem(request.method ?? '', header);
    if (name === null || grant === undefined) return next();
    if ('status' in grant) return refuse(grant);
    const work = async (passed: Passed) => {
      // The client may have left while the request waited.
      if (response.closed) return;
      request.fencing = { grant, passed };
      const closed = once(response, 'close');
      next();
      await closed;
    };
    fence.pass(name, grant, work).catch((error) => {
      const problem = problemOf(error);
      if (problem.status === 500) process.emitWarning(error);
      if (response.headersSent) response.destroy();
      else refuse(problem);
    });
  };
}

/**
 * Returns a handler of `fetch` requests, for servers that take one, which refuses the same requests as {@link fencing}
 * and gives the others to `handler`. The pass ends when the handler's promise does, so a body that is still a stream
 * then is not covered.
 */
export function fencingFetch<Passed>(
  fence: Fence<Passed>,
  resource: (request: Request) => string | null,
  handler: (request: Request, pass?: Pass<Passed>) => Promise<Response>,
): (request: Request) => Promise<Response> {
  const refuse = (problem: Problem) => Response.json(problem, { status: problem.status, headers: PROBLEM });
  return async (request) => {
    const name = resource(request);
    const grant = name === null ? undefined : grantOrProblem(request.method, request.headers.get('fencing-token'));
    if (name === null || grant === undefined) return handler(request);
    if ('status' in grant) return refuse(grant);
    try {
      return await fence.pass(name, grant, (passed) => handler(request, { grant, passed }));
    } catch (error) {
      if (error instanceof Fenced) return refuse(problemOf(error));
      throw error;
    }
  };
}
