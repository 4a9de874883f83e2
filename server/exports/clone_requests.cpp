#include "server/exports/clone_requests.hpp"

#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

void CloneRequests::send(CloneRequest request) const {
    GPUNBD_ASSERT(request.answer, "a request has a receiver for its answer");
    {
        const Lock lock(mutex_);
        if (receive_) return receive_(std::move(request));
    }
    request.answer("the server makes no clones now; try again later");
}

void CloneRequests::set_receiver(std::function<void(CloneRequest)> receive) {
    const Lock lock(mutex_);
    receive_ = std::move(receive);
}

}  // namespace gpunbd::server
