// The same classes for `import` and `require`.
export * from './testing.js';
