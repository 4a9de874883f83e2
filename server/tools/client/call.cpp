#include "server/tools/client/call.hpp"

#include "server/tools/client/handshake.hpp"

namespace gpunbd::client {

Or<Endpoint> find_endpoint(const NbdTarget& target, TlsBy by) {
    Endpoint out;
    out.name = target.export_name;
    if (target.tls) {
        auto tls = Tls::load(target, by);
        if (auto* failed = std::get_if<Failure>(&tls)) return std::move(*failed);
        out.tls = std::get<std::shared_ptr<const Tls>>(std::move(tls));
    }
    auto address = resolve(target);
    if (auto* failed = std::get_if<Failure>(&address)) return std::move(*failed);
    out.address = std::get<Address>(std::move(address));
    return out;
}

Or<Stream> call(const Endpoint& endpoint, Deadline until) {
    auto socket = dial(endpoint.address, until);
    if (auto* failed = std::get_if<Failure>(&socket)) return std::move(*failed);
    Stream stream(std::get<OwnedFd>(std::move(socket)), until);
    if (auto failed = greet(stream)) return std::move(*failed);
    if (endpoint.tls) {
        if (auto failed = enter_tls(stream, endpoint.tls)) return std::move(*failed);
    }
    return stream;
}

}  // namespace gpunbd::client
