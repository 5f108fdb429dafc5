// A real OpenID Connect provider for tests. It is started by tests.oidc in the folder that holds
// node_modules, with its settings as the only argument, and ends when its standard input does.

import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const settings = JSON.parse(process.argv[2]);
// node_modules is in the working directory, not beside this file, where an import would be looked up.
const found = createRequire(join(process.cwd(), 'package.json')).resolve('oidc-provider');
const { default: Provider } = await import(pathToFileURL(found));

// New keys at every start: a restart is a change of keys.
const kid = () => randomBytes(8).toString('hex');
const key = (type, options, alg) => ({
  ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }), kid: kid(), use: 'sig', ...alg,
});
const jwks = {
  keys: [
    key('rsa', { modulusLength: 2048 }),
    key('ec', { namedCurve: 'P-256' }, { alg: 'ES256' }),
    key('ed25519', {}),
  ],
};

const clients = settings.clients.map((client) => ({
  response_types: ['code'],
  grant_types: ['authorization_code', 'refresh_token'],
  token_endpoint_auth_method: 'client_secret_basic',
  id_token_signed_response_alg: settings.algorithm,
  ...client,
}));

const provider = new Provider(settings.issuer, {
  clients,
  jwks,
  cookies: { keys: [kid()] },
  claims: { openid: ['sub'], profile: ['name', 'picture'] },
  // Anybody may log in: an account that was not described has the name that it logs in with.
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ name: id, ...settings.accounts[id], sub: id }),
  }),
  features: { devInteractions: { enabled: false }, revocation: { enabled: true } },
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
  expiresWithSession: () => false,
  ttl: {
    AccessToken: settings.accessTokenSeconds,
    AuthorizationCode: 60,
    Grant: 86400,
    IdToken: 3600,
    Interaction: 600,
    RefreshToken: 86400,
    Session: 86400,
  },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
});

const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const page = (client, login) => `<!doctype html>
<html lang="en">
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in</title>
<h1>Sign in</h1>
<p>${escaped(client)} wants to know who you are.</p>
<form method="post">
  <label>Account <input name="login" value="${escaped(login)}" autofocus></label>
  <button name="decision" value="allow">Allow</button>
  <button name="decision" value="cancel">Cancel</button>
</form>
</html>`;

async function form(request) {
  let body = '';
  for await (const piece of request) body += piece;
  return new URLSearchParams(body);
}

async function allowed(details, login) {
  const grant = new provider.Grant({ accountId: login, clientId: details.params.client_id });
  grant.addOIDCScope(details.params.scope);
  return { login: { accountId: login }, consent: { grantId: await grant.save() } };
}

const cancelled = { error: 'access_denied', error_description: 'the person cancelled' };

provider.use(async (ctx, next) => {
  if (!ctx.path.startsWith('/interaction/')) return next();
  const details = await provider.interactionDetails(ctx.req, ctx.res);
  if (ctx.method !== 'POST') {
    ctx.type = 'html';
    ctx.body = page(details.params.client_id, details.session?.accountId ?? '');
    return undefined;
  }
  const sent = await form(ctx.req);
  const result = sent.get('decision') === 'allow' ? await allowed(details, sent.get('login')) : cancelled;
  ctx.respond = false; // interactionFinished answers by itself
  return provider.interactionFinished(ctx.req, ctx.res, result, { mergeWithLastSubmission: false });
});

process.stdin.resume().on('end', () => process.exit(0));
provider.listen(settings.port, '127.0.0.1', () => console.log('listening'));
