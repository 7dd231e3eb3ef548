// The same classes for `import` and `require`, so that `instanceof` holds over both.
export * from './index.js';
