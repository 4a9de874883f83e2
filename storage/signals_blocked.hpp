// Signals are for the main thread: others are started while this lives, and inherit its mask. Those
// that a thread raises by a fault of its own stay: blocked, they are deadly even with a handler.
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
