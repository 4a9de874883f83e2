// Blocks signals while it exists. Threads that are started meanwhile inherit the mask, so that only
// the main thread handles signals. Synchronous signals such as SIGSEGV stay unblocked: if they are
// blocked, the kernel kills the process without calling the handler.
#pragma once

#include <pthread.h>

#include <csignal>

namespace gpunbd::storage {

class SignalsBlocked {
 public:
    SignalsBlocked() {
        sigset_t all;
        ::sigfillset(&all);
        for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) ::sigdelset(&all, own);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
    sigset_t before_;
};

}  // namespace gpunbd::storage
