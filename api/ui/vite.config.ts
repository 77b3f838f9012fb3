import { defineConfig } from "vite";

// The page is served as /ui, its files as /ui/assets/NAME-HASH.EXT, which may be kept for ever.
export default defineConfig({
  base: "/ui/",
  build: {
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy allows no data: but images
    modulePreload: { polyfill: false },
    rollupOptions: {
      // Directives of server components mean nothing here.
      onwarn: (warning, warn) => warning.code === "MODULE_LEVEL_DIRECTIVE" || warn(warning),
    },
  },
  esbuild: { jsx: "automatic" },
});
