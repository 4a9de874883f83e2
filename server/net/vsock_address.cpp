#include "server/net/vsock_address.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
// After <sys/socket.h>, whose types it needs.
#include <linux/vm_sockets.h>

namespace gpunbd::server {

static_assert(config::any_cid == VMADDR_CID_ANY);

std::string name_of(const config::VsockListener& options) {
    return options.cid == config::any_cid ? fmt::format("vsock:any:{}", options.port)
                                          : fmt::format("vsock:{}:{}", options.cid, options.port);
}

OwnedFd bind_vsock(const config::VsockListener& options) {
    OwnedFd fd(::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0) throw vsock_error(options, errno);
    sockaddr_vm address{};
    address.svm_family = AF_VSOCK;
    address.svm_cid = options.cid;
    address.svm_port = options.port;
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        throw vsock_error(options, errno);
    }
    return fd;
}

AddressError vsock_error(const config::VsockListener& options, int error) {
    using Kind = AddressError::Kind;
    const std::string where = name_of(options);
    switch (error) {
        case EADDRINUSE:
            return {Kind::taken,
                    fmt::format("{}: the port is taken; end the program that listens there, or "
                                "choose another port",
                                where)};
        case EADDRNOTAVAIL: {
            const auto own = local_cid();
            return {Kind::absent,
                    fmt::format("{}: this machine is not CID {}{}; any matches every CID", where,
                                options.cid,
                                own ? fmt::format(", but {}", *own) : ": " + no_vsock_transport())};
        }
        case EAFNOSUPPORT:
            return {Kind::absent, fmt::format("{}: this kernel has no vsock; load its module "
                                              "(modprobe vsock), or listen elsewhere",
                                              where)};
        case EACCES:
        case EPERM:
            return {Kind::other,
                    fmt::format("{}: uid {} may not take this port; choose one above 1023, or give "
                                "gpunbd the capability CAP_NET_BIND_SERVICE",
                                where, ::geteuid())};
        default:
            return {Kind::other,
                    fmt::format("{}: cannot listen there: {}", where, std::strerror(error))};
    }
}

std::optional<std::uint32_t> local_cid() {
    const OwnedFd device(::open("/dev/vsock", O_RDONLY | O_CLOEXEC));
    std::uint32_t cid = VMADDR_CID_ANY;
    if (device.get() < 0 || ::ioctl(device.get(), IOCTL_VM_SOCKETS_GET_LOCAL_CID, &cid) != 0 ||
        cid == VMADDR_CID_ANY) {
        return std::nullopt;
    }
    return cid;
}

std::string no_vsock_transport() {
    return "no vsock transport is loaded, so no client can connect (on a host: modprobe "
           "vhost_vsock; in a guest: add a vsock device to the virtual machine; for this machine "
           "only: modprobe vsock_loopback)";
}

}  // namespace gpunbd::server
