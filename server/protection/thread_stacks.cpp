#include "server/protection/thread_stacks.hpp"

#include <pthread.h>

namespace gpunbd::server {

void make_thread_stacks_small() {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, thread_stack);
    ::pthread_setattr_default_np(&attributes);
    ::pthread_attr_destroy(&attributes);
}

}  // namespace gpunbd::server
