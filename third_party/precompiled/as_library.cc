// Compiled as every library is: see precompiled_test.cc.
namespace djinn {

bool LibraryIsPrecompiled() {
#if defined(DJINN_USES_TORCH) && !defined(DJINN_PRECOMPILED_TORCH)
  return false;
#elif defined(DJINN_PRECOMPILED_LIBRARY)
  return true;
#else
  return false;
#endif
}

}  // namespace djinn
