//! Setting and showing what is told of a bucket.

use catalog::Way;
use s3s::{S3Request, S3Response, S3Result, dto::*};

use super::{cause, rules};
use crate::s3::{
    Door,
    error::{Asked, of_catalog},
    read::expected_owner,
};

impl Door {
    pub(in crate::s3) async fn notification(
        &self,
        request: S3Request<GetBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketNotificationConfigurationOutput>> {
        let input = &request.input;
        let view = self.settled(&request, &input.bucket, "s3:GetBucketNotification").await?;
        expected_owner(&view, input.expected_bucket_owner.as_deref())?;
        let (queue_configurations, topic_configurations) = rules::shown(&view.bucket.events);
        Ok(S3Response::new(GetBucketNotificationConfigurationOutput {
            queue_configurations,
            topic_configurations,
            ..GetBucketNotificationConfigurationOutput::default()
        }))
    }

    /// Each destination is told, by a test event in its turn, that it is named; so there is no look at it beforehand
    /// that a client could ask to be skipped.
    pub(in crate::s3) async fn set_notification(
        &self,
        request: S3Request<PutBucketNotificationConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketNotificationConfigurationOutput>> {
        let view = self.settled(&request, &request.input.bucket, "s3:PutBucketNotification").await?;
        let cause = cause(&request, Way::Plain);
        let input = request.input;
        expected_owner(&view, input.expected_bucket_owner.as_deref())?;
        let known: Vec<_> = self.config.notify.keys().map(String::as_str).collect();
        let rules = rules::read(input.notification_configuration, &known)?;
        let set = self.catalog.set_bucket_events(view.bucket.entry, rules, cause).await;
        set.map_err(|error| of_catalog(error, Asked::Bucket))?;
        Ok(S3Response::new(PutBucketNotificationConfigurationOutput::default()))
    }
}
