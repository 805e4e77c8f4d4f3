// Marks what libdjinn_client.so exports; everything else in it is hidden.
#ifndef CLIENT_LIB_INCLUDE_DJINN_API_H_
#define CLIENT_LIB_INCLUDE_DJINN_API_H_

#define DJINN_API __attribute__((visibility("default")))

#endif  // CLIENT_LIB_INCLUDE_DJINN_API_H_
