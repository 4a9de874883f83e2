// Annotations that clang checks at compile time (-Wthread-safety). Other compilers ignore them.
#pragma once

#if defined(__clang__)
#define GPUNBD_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define GPUNBD_THREAD_SAFETY(attribute)
#endif

#define CAPABILITY(name) GPUNBD_THREAD_SAFETY(capability(name))
#define SCOPED_CAPABILITY GPUNBD_THREAD_SAFETY(scoped_lockable)
#define GUARDED_BY(mutex) GPUNBD_THREAD_SAFETY(guarded_by(mutex))
#define REQUIRES(...) GPUNBD_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define ACQUIRED_BEFORE(...) GPUNBD_THREAD_SAFETY(acquired_before(__VA_ARGS__))
#define EXCLUDES(...) GPUNBD_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) GPUNBD_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define RELEASE(...) GPUNBD_THREAD_SAFETY(release_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(...) GPUNBD_THREAD_SAFETY(assert_capability(__VA_ARGS__))
#define RETURN_CAPABILITY(mutex) GPUNBD_THREAD_SAFETY(lock_returned(mutex))
#define NO_THREAD_SAFETY_ANALYSIS GPUNBD_THREAD_SAFETY(no_thread_safety_analysis)
