// Compiled as every library is: see precompiled_test.cc.
namespace djinn {

bool LibraryIsPrecompiled() {
#ifdef DJINN_PRECOMPILED_LIBRARY
  return true;
#else
  return false;
#endif
}

}  // namespace djinn
