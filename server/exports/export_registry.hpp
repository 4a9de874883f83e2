#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "config/options.hpp"
#include "server/exports/access_list.hpp"
#include "server/exports/export.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

// An export with clone_per_client: it has no contents, and each client that opens it gets a clone
// of another export.
struct ExportTemplate {
    explicit ExportTemplate(const config::ExportOptions& its_options)
        : options(its_options), access(its_options.access) {}

    // The client for which a clone is made.
    struct Client {
        std::string id;       // config::is_client_id()
        std::string why_not;  // no clone can be made for it, as one line for the client
    };
    // The client that asks for an export of this name; nothing: it is neither the name of the
    // template nor one of its clones that the client names itself.
    std::optional<Client> client_of(const PeerIdentity& applicant, std::string_view name) const;
    // Clients have to add their id to the name of the template.
    bool needs_longer_name() const {
        return options.clone_per_client.name == config::ClientId::machine;
    }

    config::ExportOptions options;
    AccessList access;
};

using ExportTemplates = std::vector<std::shared_ptr<const ExportTemplate>>;
ExportTemplates templates_in(const config::ExportList& exports);

struct CloneRequest {
    std::string template_name;
    std::string client;  // ExportTemplate::Client::id
    std::string peer;    // its peer_key()
    // Called once, on any thread, or destroyed uncalled if the server is ending. Empty text: the
    // clone is offered; otherwise the reason why not, as one line for the client.
    std::function<void(std::string why_not)> answer = {};
};

// Requests for clones, from the workers to the thread that changes the list of exports.
class CloneRequests {
 public:
    // Any thread. Answers at once if there is no receiver.
    void send(CloneRequest request) const;
    // `receive` must not block. Empty: none. After the return an earlier one is not called any
    // more.
    void set_receiver(std::function<void(CloneRequest)> receive);

 private:
    mutable Mutex mutex_;
    std::function<void(CloneRequest)> receive_ GUARDED_BY(mutex_);
};

// The exports that are offered: a snapshot that any thread may read and that a reload replaces as a
// whole.
class ExportRegistry {
 public:
    // In listing order. The first one is also the default export ("").
    using Exports = std::vector<std::shared_ptr<const Export>>;

    void replace(Exports exports, ExportTemplates templates = {});
    std::shared_ptr<const Exports> snapshot() const;
    std::shared_ptr<const Export> open(std::string_view name) const;
    using Names = std::vector<std::string>;
    // The names that clients can open, in listing order. They keep no export alive.
    std::shared_ptr<const Names> names() const;
    std::shared_ptr<const ExportTemplates> templates() const;
    // The export with exactly this name, or null.
    std::shared_ptr<const Export> find(std::string_view name) const;
    CloneRequests& clone_requests() { return clone_requests_; }
    const CloneRequests& clone_requests() const { return clone_requests_; }

 private:
    mutable Mutex mutex_;
    std::shared_ptr<const Exports> exports_ GUARDED_BY(mutex_) = std::make_shared<const Exports>();
    std::shared_ptr<const Names> names_ GUARDED_BY(mutex_) = std::make_shared<const Names>();
    std::shared_ptr<const ExportTemplates> templates_ GUARDED_BY(mutex_) =
        std::make_shared<const ExportTemplates>();
    // By name: the index in both.
    std::unordered_map<std::string_view, std::size_t> places_ GUARDED_BY(mutex_);
    CloneRequests clone_requests_;
};

// Finds the exports of a list by their names, each at most once. Names that are asked for in the
// order of the list, which is the rule when one of thousands of exports changes, are found without
// an index. The list must outlive this object, which holds no reference to an export: reports count
// those.
class ExportLookup {
 public:
    explicit ExportLookup(const ExportRegistry::Exports& exports) : exports_(exports) {}
    // Null: there is none.
    const std::shared_ptr<const Export>* find(std::string_view name);

 private:
    const std::shared_ptr<const Export>* find_next(std::string_view name);

    const ExportRegistry::Exports& exports_;
    std::size_t next_ = 0;  // those before it were found, except if skipped_
    bool skipped_ = false;
    std::unordered_map<std::string_view, const std::shared_ptr<const Export>*> index_;
};

}  // namespace gpunbd::server
