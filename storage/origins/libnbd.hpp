// Loads libnbd at its first use, so that the program runs without it if no origin is on another
// server.
#pragma once

#include <libnbd.h>

#include <string>

namespace gpunbd::storage {

// The functions of the library that are used. None is null.
class Libnbd {
 public:
    // Null: it cannot be loaded, and `why` is the reason for users. The next call tries it again.
    // The result is valid until the process ends. Any thread may call it.
    static const Libnbd* load(std::string& why);

 private:
    Libnbd();  // throws

    template <typename Function>
    Function find(const char* name) const;  // throws

    // Never unloaded: it and its libraries keep state of the process and of each thread.
    void* const library_;

 public:
#define GPUNBD_LIBNBD(name) \
    const decltype(&::nbd_##name) name = find<decltype(&::nbd_##name)>("nbd_" #name)
    GPUNBD_LIBNBD(add_meta_context);
    GPUNBD_LIBNBD(aio_block_status);
    GPUNBD_LIBNBD(aio_command_completed);
    GPUNBD_LIBNBD(aio_connect_uri);
    GPUNBD_LIBNBD(aio_disconnect);
    GPUNBD_LIBNBD(aio_flush);
    GPUNBD_LIBNBD(aio_get_direction);
    GPUNBD_LIBNBD(aio_get_fd);
    GPUNBD_LIBNBD(aio_is_closed);
    GPUNBD_LIBNBD(aio_is_dead);
    GPUNBD_LIBNBD(aio_is_ready);
    GPUNBD_LIBNBD(aio_notify_read);
    GPUNBD_LIBNBD(aio_notify_write);
    GPUNBD_LIBNBD(aio_pread);
    GPUNBD_LIBNBD(aio_pwrite);
    GPUNBD_LIBNBD(aio_zero);
    GPUNBD_LIBNBD(can_flush);
    GPUNBD_LIBNBD(can_meta_context);
    GPUNBD_LIBNBD(can_multi_conn);
    GPUNBD_LIBNBD(can_zero);
    GPUNBD_LIBNBD(close);
    GPUNBD_LIBNBD(create);
    GPUNBD_LIBNBD(get_block_size);
    GPUNBD_LIBNBD(get_canonical_export_name);
    GPUNBD_LIBNBD(get_errno);
    GPUNBD_LIBNBD(get_error);
    GPUNBD_LIBNBD(get_export_description);
    GPUNBD_LIBNBD(get_size);
    GPUNBD_LIBNBD(is_read_only);
    GPUNBD_LIBNBD(poll);
    GPUNBD_LIBNBD(set_full_info);
    GPUNBD_LIBNBD(set_uri_allow_local_file);
#undef GPUNBD_LIBNBD
};

}  // namespace gpunbd::storage
