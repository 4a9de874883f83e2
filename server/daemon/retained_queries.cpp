#include "server/daemon/retained_queries.hpp"

#include <utility>
#include <variant>

#include "server/daemon/retained_outcome.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t max_waiting_queries = 64;

}  // namespace

RetainedQueries::RetainedQueries(ServerContext& context, ExportService& exports)
    : context_(context), exports_(exports) {
    exports.add(*this);
}

void RetainedQueries::answer(const ServerAdminBackend::RetainedQuery& query) {
    if (!context_.retained.contents) {
        return query.completion(
            NotDone{"no supervisor keeps contents for this server; start it by gpunbd keep, or by "
                    "systemd with "
                    "FileDescriptorStoreMax="});
    }
    if (exports_.busy()) {
        if (waiting_.size() < max_waiting_queries) return waiting_.push_back(query);
        return query.completion(NotDone{"exports are being made; try again later"});
    }
    if (!query.drop) return query.completion(list_kept(*context_.retained.contents));
    if (context_.lifecycle.refuses_changes()) {
        return query.completion(context_.lifecycle.refusal());
    }
    const Outcome outcome = drop_kept(*context_.retained.contents, *query.drop);
    if (std::holds_alternative<Done>(outcome) && !exports_.refused().empty()) exports_.remake();
    query.completion(outcome);
}

void RetainedQueries::exports_idle() {
    for (const auto& each : std::exchange(waiting_, {})) answer(each);
}

}  // namespace gpunbd::server
