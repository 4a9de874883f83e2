#include "server/tools/client/call.hpp"

#include "server/tools/client/handshake.hpp"

namespace gpunbd::client {

Expected<Endpoint, Failure> find_endpoint(const NbdTarget& target, TlsBy by) {
    Endpoint out;
    out.name = target.export_name;
    if (target.tls) {
        auto tls = Tls::load(target, by);
        if (!tls) return std::move(tls).error();
        out.tls = *std::move(tls);
    }
    auto address = resolve(target);
    if (!address) return std::move(address).error();
    out.address = *std::move(address);
    return out;
}

Expected<Stream, Failure> call(const Endpoint& endpoint, Deadline until) {
    auto socket = dial(endpoint.address, until);
    if (!socket) return std::move(socket).error();
    Stream stream(*std::move(socket), until);
    if (auto failed = greet(stream)) return std::move(*failed);
    if (endpoint.tls) {
        if (auto failed = enter_tls(stream, endpoint.tls)) return std::move(*failed);
    }
    return stream;
}

}  // namespace gpunbd::client
